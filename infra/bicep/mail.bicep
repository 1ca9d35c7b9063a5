// Azure Communication Services as the mail server, with a domain that Azure makes and signs for.
//
// Its SMTP end asks for the id and a secret of an application of Microsoft Entra, which no template can make:
// `swathmill deploy --mail azure` makes it first.
param name string
param applicationId string
param principalId string

@description('Where the messages are kept.')
param dataLocation string

@description('Built-in role Communication and Email Service Owner: the only one that may send.')
var sendingRole = '09976791-48a7-449e-bb21-39d1a415f350'

resource email 'Microsoft.Communication/emailServices@2023-04-01' = {
  name: '${name}-email'
  location: 'global'
  properties: {
    dataLocation: dataLocation
  }
}

resource domain 'Microsoft.Communication/emailServices/domains@2023-04-01' = {
  parent: email
  name: 'AzureManagedDomain'
  location: 'global'
  properties: {
    domainManagement: 'AzureManaged'
    userEngagementTracking: 'Disabled'
  }
}

resource service 'Microsoft.Communication/communicationServices@2023-04-01' = {
  name: '${name}-${uniqueString(resourceGroup().id)}'
  location: 'global'
  properties: {
    dataLocation: dataLocation
    linkedDomains: [
      domain.id
    ]
  }
}

resource sending 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(service.id, principalId, sendingRole)
  scope: service
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', sendingRole)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

output host string = 'smtp.azurecomm.net'
output user string = '${service.name}.${applicationId}.${tenant().tenantId}'
output sender string = 'DoNotReply@${domain.properties.fromSenderDomain}'
